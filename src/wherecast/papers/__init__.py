"""The five papers, a room each: its matcher with its kernels, its workload, its experiments; `lab` runs and reports them."""
