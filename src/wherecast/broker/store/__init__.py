"""The store: tables, one module per concern. A function takes a connection and, where rows belong to a tenant, the tenant."""
