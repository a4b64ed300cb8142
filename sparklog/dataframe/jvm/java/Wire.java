/*
 * Numbers and strings of the Kafka protocol, in requests that leave the JVM and their responses.
 *
 * Owns: the compact types of the protocol guide, read from and written to a ByteBuffer.
 * Must not know: which message the bytes belong to; Spark.
 *
 * Every reader throws a RuntimeException for bytes that no Kafka broker sends.
 */
package sparklog.dataframe;

final class Wire {
  /** Writes an unsigned varint. */
  static void putUvarint(java.nio.ByteBuffer to, int number) {
    while ((number & -128) != 0) {
      to.put((byte) (number | 128));
      number >>>= 7;
    }
    to.put((byte) number);
  }

  /** Reads an unsigned varint of at most five bytes. */
  static int uvarint(java.nio.ByteBuffer from) {
    int number = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      int part = from.get();
      number |= (part & 127) << shift;
      if (part >= 0) return number;
    }
    throw new IllegalArgumentException("a number without end");
  }

  /** Reads the length of a compact array.  Each of its entries has at least one byte. */
  static int count(java.nio.ByteBuffer from) {
    int count = uvarint(from) - 1;
    if (count < 0 || count > from.remaining())
      throw new IllegalArgumentException(count + " entries");
    return count;
  }

  /** Reads a compact string.  A null string is read as an empty one. */
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

  /** Skips the tagged fields (KIP-482). */
  static void skipTags(java.nio.ByteBuffer from) {
    int tags = uvarint(from);
    for (int i = 0; i < tags; i++) {
      uvarint(from);
      skip(from, uvarint(from));
    }
  }

  /** Returns what to throw for a response that a reader of this class refused. */
  static java.io.IOException malformed(RuntimeException error) {
    return new java.io.IOException("an answer that is none: " + error);
  }
}
