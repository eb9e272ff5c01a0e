"""A server and its silos, each a process of its own, over GRPC, TRPC, MPI or MQTT and S3."""
