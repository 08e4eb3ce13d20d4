"""The static site: one Sphinx project over the repository's own documents, with pages that are generated from its data.

    make site        # build/site/html/index.html, to be opened from files

`build/site/source` gets a copy of every document at its own address, so that the links between documents are those of the
repository, and the generated pages, none of which is stored.
"""
