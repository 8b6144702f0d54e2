"""Sessions: a session decodes one text by one method, round by round."""
