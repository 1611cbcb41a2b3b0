"""The papers' tables and figures, reproduced: experiments with their settings, claims and plots."""
