"""Bytes and names: the one place that touches disks and object stores.

Owns: the storage contract (``base``), its backends (``local`` for ``file://``, ``memory`` for
``memory://``, ``s3`` for buckets, ``object_store`` for what else fsspec knows), the table of URL
schemes (``registry``) and the seam through which blocking work leaves an event loop
(``blocking``).  Must not know what the bytes mean: no record, topic or offset.

**The contract** has two halves.

``StorageBackend`` is what every store can do, object stores included: ``read`` a range, ``size``,
``exists``, ``list``, ``put``, ``put_if_absent``, ``append``, ``truncate``, ``rename``, ``delete``,
``flush``.  Paths are relative, ``/`` between parts, and below the backend's root.

* ``put_if_absent`` is the only operation that several writers may race on: exactly one wins.  It
  and ``put`` are never seen half done and are durable when they return.  After an *error* its
  outcome is unknown (the answer may have been lost on the way, and a library's retry then shows
  one's own success as "exists"): callers put a nonce into the data and read it back.
* Everything else has one writer per path.  ``append`` is all or nothing for that writer, and its
  bytes are durable after ``flush``.  Names that were renamed or deleted are durable after
  ``flush_folder`` (on object stores: at once).
* Folders exist as soon as something is in them; listing a missing folder gives nothing, because
  an object store could not tell the difference.  A path is a file or a folder, never both.
* On an object store ``append``, ``truncate`` and ``rename`` copy the object: correct, not cheap,
  and not atomic for readers.  Hot paths use whole objects, or the file half.

``FileHalf`` adds what only files can do: open handles with gathered writes, regions that a
transport sends without copying, maps, folders, locks.  ``file_half(backend)`` refuses a store that
declines it.  Log and transport use nothing else, so they run unchanged on ``memory://``, whose
``faults`` make a disk full, read-only, slow or failing and whose ``crash()`` forgets what was not
flushed.

Every failure is a ``StorageError`` that names the path and the remedy; a path that is not there is
a ``MissingPathError``.

**A new backend** is one module with a class that derives from ``StorageBackend`` (or ``FileHalf``)
and a function ``open_url(url, options)``, one line in ``registry.SCHEMES`` (or a call of
``registry.register_scheme`` from outside), and one line in the list of backends in
``tests/unit/storage/conftest.py``; the contract suite then runs against it.  It says with
``atomic_put_if_absent`` whether its ``put_if_absent`` really lets exactly one writer win; a store
where it does not can hold data, but no journal.
"""
