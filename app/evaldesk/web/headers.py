"""The headers that every answer carries."""

from __future__ import annotations

# Under `no-referrer` a browser sends `Origin: null` with our own forms, and the guard refuses them.
_FIXED: tuple[tuple[bytes, bytes], ...] = (
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
    (b"cache-control", b"no-store"),
)


def security_headers(nonce: str, *, has_chart: bool = False) -> list[tuple[bytes, bytes]]:
    """Policy, framing, sniffing, caching. Only a page with a chart may set inline styles: Plotly needs them."""
    style = "'self' 'unsafe-inline'" if has_chart else "'self'"
    policy = (
        f"default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src {style}; img-src 'self' data:; "
        "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types htmx"
    )
    return [(b"content-security-policy", policy.encode()), *_FIXED]
