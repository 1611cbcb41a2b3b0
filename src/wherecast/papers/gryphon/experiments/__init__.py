"""The Gryphon paper; one module per curve."""
