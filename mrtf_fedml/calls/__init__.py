"""What a Python program calls: labels for arrays it holds, or a configuration run, as objects that come back."""
