"""Makes a minimal Debian with mmdebstrap, and finds what this machine needs for registries."""

import subprocess
from pathlib import Path

_RELEASE = "bookworm"
_NOT_IN_SLIM = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
# The authorities that Debian's own Java trusts; some machines add one of a proxy.
_JAVA_AUTHORITIES = Path("/etc/ssl/certs/java/cacerts")


def make_debian(target: Path, *packages: str) -> None:
    """Make it as a folder, or as an archive if the target's name ends in .tar."""
    # Otherwise a package that merges /usr brings all of Perl.
    merged = "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"
    included = ",".join(("usr-is-merged", *packages))
    made = ["mmdebstrap", "--variant=minbase", merged, f"--include={included}"]
    # As in Debian's slim images.
    made += ['--aptopt=APT::Install-Recommends "false"']
    made += [f"--dpkgopt=path-exclude={each}" for each in _NOT_IN_SLIM]
    made += ['--customize-hook=rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*']
    subprocess.run([*made, _RELEASE, str(target)], check=True, capture_output=True)


def java_options() -> dict[str, str]:
    """Return the variable with which the wheel's Java trusts what this machine's Java trusts."""
    if not _JAVA_AUTHORITIES.exists():
        return {}
    return {"JDK_JAVA_OPTIONS": f"-Djavax.net.ssl.trustStore={_JAVA_AUTHORITIES}"}
