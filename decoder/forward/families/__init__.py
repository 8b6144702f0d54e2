"""Model families built from few, large operations, proved equal to Hugging Face's modules."""
