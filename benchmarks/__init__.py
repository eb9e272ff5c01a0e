"""Programs that reproduce the paper and measure speed; they are not installed with the package."""
