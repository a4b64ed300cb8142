"""Kafka's numbers and texts in Java, for requests that leave the JVM.

Owns: the Java that writes and reads them.  Must not know which message they are in.

Reading raises RuntimeException for bytes that cannot be meant so.  Protocol guide: compact types.
"""

from typing import Final

_JAVA: Final = r"""
final class Wire {
  static void putUvarint(java.nio.ByteBuffer to, int number) {
    while ((number & -128) != 0) {
      to.put((byte) (number | 128));
      number >>>= 7;
    }
    to.put((byte) number);
  }

  static int uvarint(java.nio.ByteBuffer from) {
    int number = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      int part = from.get();
      number |= (part & 127) << shift;
      if (part >= 0) return number;
    }
    throw new IllegalArgumentException("a number without end");
  }

  /** How many entries follow, none of which has less than a byte. */
  static int count(java.nio.ByteBuffer from) {
    int count = uvarint(from) - 1;
    if (count < 0 || count > from.remaining())
      throw new IllegalArgumentException(count + " entries");
    return count;
  }

  /** Null is empty, too. */
  static String text(java.nio.ByteBuffer from) {
    int length = uvarint(from) - 1;
    if (length <= 0) return "";
    if (length > from.remaining()) throw new IllegalArgumentException("a text too long");
    byte[] bytes = new byte[length];
    from.get(bytes);
    return new String(bytes, java.nio.charset.StandardCharsets.UTF_8);
  }

  static void skip(java.nio.ByteBuffer from, int bytes) {
    if (bytes < 0) throw new IllegalArgumentException(bytes + " bytes");
    from.position(from.position() + bytes);
  }

  static void skipTags(java.nio.ByteBuffer from) {
    int tags = uvarint(from);
    for (int i = 0; i < tags; i++) {
      uvarint(from);
      skip(from, uvarint(from));
    }
  }

  static java.io.IOException malformed(RuntimeException error) {
    return new java.io.IOException("an answer that is none: " + error);
  }
}
"""


def wire_java() -> str:
    """The class ``Wire``, for inside others."""
    return _JAVA
