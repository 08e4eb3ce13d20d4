"""The requirements: one module an area, one function a requirement. `conformance/WRITING.md` says how to write one."""
