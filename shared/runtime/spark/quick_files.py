"""Lets Spark write a checkpoint on a local disk without starting a program for each file.

Hadoop's local file system runs `chmod` for every file that it makes, unless Hadoop's native library
is there, which no Python package brings. A micro-batch makes four files (two of them checksums),
and starting four programs from a JVM takes longer than anything else that a small micro-batch does
(ADR 0021). So the few lines that differ are compiled inside the JVM by the compiler that Spark
brings for its own code generation.
"""

from pyspark.sql import SparkSession

_SOURCE = """
package hifi;

import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class QuickFiles extends DelegateToFileSystem {
  public QuickFiles(java.net.URI uri, Configuration conf) throws Exception {
    super(uri, new PlainFiles(), conf, "file", false);
  }
  public int getUriDefaultPort() { return -1; }
  public boolean isValidName(String name) { return true; }

  public static class PlainFiles extends RawLocalFileSystem {
    public void setPermission(Path path, FsPermission permission) throws java.io.IOException {
      FsPermission plain = new FsPermission((short) (permission.toShort() & 0777));
      Files.setPosixFilePermissions(
        pathToFile(path).toPath(), PosixFilePermissions.fromString(plain.toString()));
    }
  }
}
"""


def write_files_quickly(spark: SparkSession) -> None:
    """Have every checkpoint under `file:` written so; other file systems are not touched."""
    context = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001 - pyspark has no other way into its JVM
    assert jvm is not None, "a session that runs has its JVM"
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    settings = context._jsc.hadoopConfiguration()  # noqa: SLF001 - as above
    settings.setClassLoader(compiler.getClassLoader())
    settings.set("fs.AbstractFileSystem.file.impl", "hifi.QuickFiles")
