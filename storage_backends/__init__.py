"""Storage backends: bytes and names, and the only access to disks and object stores.

Owns: the storage contract (``base``), its backends (``local`` for ``file://``, ``memory`` for
``memory://``, ``s3`` for buckets, ``object_store`` for all other schemes of fsspec), the table of
URL schemes (``registry``) and the seam through which blocking work leaves an event loop
(``blocking``).  Must not know what the bytes mean: no record, topic or offset.

**The contract** has two halves.

``StorageBackend`` has what every store can do, object stores included: ``read`` a range, ``size``,
``exists``, ``list``, ``put``, ``put_if_absent``, ``upload``, ``append``, ``truncate``, ``rename``,
``delete``, ``delete_many``, ``flush``, ``presign``.  Paths are relative, ``/`` between parts, and
below the backend's root.

* ``put_if_absent`` is the only operation on which several writers may race: exactly one wins.
  Readers never see a half-done ``put_if_absent`` or ``put``, and both are durable when they return.
  After an *error* the outcome is unknown: the answer may have been lost, and a library's retry then
  reports the caller's own success as "exists".  Therefore callers put a nonce into the data and
  read it back.
* ``upload`` is a ``put`` of bytes that are never in memory as a whole.  S3 gets them in parts of
  ``parts.PART_BYTES``, and shows them as a whole or not at all.  No listing shows what a killed
  ``upload`` leaves, and ``remove_leftovers`` removes it.
* ``presign`` gives a URL with which anybody can read one file of a bucket, without credentials.
* All other operations have one writer per path.  ``append`` is all or nothing for that writer, and
  its bytes are durable after ``flush``.  Renamed and deleted names are durable after
  ``flush_folder`` (on object stores: at once).
* A folder exists as soon as something is in it.  Listing a missing folder gives nothing, because an
  object store could not tell the difference.  A path is a file or a folder, never both.
* On an object store ``append``, ``truncate`` and ``rename`` copy the object.  This is correct, but
  neither cheap nor atomic for readers.  Hot paths use whole objects, or the file half.

``FileHalf`` adds what only files can do: open handles with gathered writes, regions that a
transport sends without copying, maps, folders, locks.  ``file_half(backend)`` refuses a store
without it.  Log and transport use nothing else, so they run unchanged on ``memory://``.  The
``faults`` of a memory disk make it full, read-only, slow or failing, and its ``crash()`` forgets
everything that was not flushed.

Every failure is a ``StorageError`` that names the path and the remedy; a missing path is a
``MissingPathError``.

**A new backend** is one module with a class that derives from ``StorageBackend`` (or ``FileHalf``)
and a function ``open_url(url, options)``, one line in ``registry.SCHEMES`` (or a call of
``registry.register_scheme`` from outside), and one line in the list of backends in
``tests/unit/storage/conftest.py``; the contract suite then runs against it.  Its attribute
``atomic_put_if_absent`` says whether ``put_if_absent`` really lets exactly one writer win.  A store
without that guarantee can hold data, but no journal.
"""
