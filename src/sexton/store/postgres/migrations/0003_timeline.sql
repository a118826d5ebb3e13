-- The timelines of the server that this store was seen on. A new one means a failover: what was committed last before it
-- may be missing, leases among it.
CREATE TABLE {schema}.timeline (
    number bigint PRIMARY KEY,
    since  timestamptz NOT NULL   -- when a node noticed it; -infinity for the one that the store was made on
);
