"""The report: one self-contained HTML file, its figures' data, and claims.json."""
