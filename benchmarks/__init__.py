"""Speed against named peers, measured in the same run on the same machine; reported as ratios."""
