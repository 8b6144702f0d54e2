"""How the embedded pair was made: tokenizer, target, draft, distillation, measurement. Nothing imports this package."""
