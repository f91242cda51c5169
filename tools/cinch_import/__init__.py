"""Exported PyTorch programs (torch.export) become readable .cinch programs with their weights: python -m cinch_import FILE.pt2"""
