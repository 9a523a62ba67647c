# The program and nothing else. First: cargo xtask dist
#
# The API server, the controllers and the sidecars need nothing around them. The driver and the node agent call mount, mkfs
# and their like: give them a base that has those, such as --build-arg BASE=debian:stable-slim with e2fsprogs and mount in it.
ARG BASE=scratch
FROM ${BASE}
COPY target/dist/orlop /usr/bin/orlop
ENTRYPOINT ["/usr/bin/orlop"]
