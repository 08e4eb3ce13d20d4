"""The requirements: one module an area, one function a requirement. `conformance/README.md` says how to write one."""
