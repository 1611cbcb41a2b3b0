"""The five papers, a package each: its matcher with its kernels, its workload, its experiments; `lab` runs and reports them."""
