"""The desk behind nginx with TLS, under a name of its own: pages, forms, event streams, cookies and `open`."""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.bound_processes import bound_python
from tests.e2e.conftest import ENVIRONMENT, WITHOUT_WARM_POOL

pytestmark = pytest.mark.browser

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
TOKEN = "a-token-for-the-journeys"
NGINX = """
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{public_port} ssl;
    server_name evals.localhost;
    ssl_certificate {folder}/cert.pem;
    ssl_certificate_key {folder}/key.pem;
    location / {{
      proxy_pass http://127.0.0.1:{desk_port};
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_set_header Connection "";
    }}
  }}
}}
"""


@dataclass
class ProxiedDesk:
    """A desk behind nginx; `address` is the one that browsers open."""

    workspace: Path
    address: str
    first_page: str
    port: int


SLOW = ENVIRONMENT | {"EVALDESK_DEMO_DELAY_MS": "150"}
"""Each piece of an answer comes by itself, also on a busy machine."""


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedDesk]:
    nginx, openssl = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin"), shutil.which("openssl")
    if not (nginx and openssl):
        pytest.skip("no nginx or no openssl here")
    folder = tmp_path_factory.mktemp("proxy")
    with socket.create_server(("127.0.0.1", 0)) as free:
        public_port = free.getsockname()[1]
    address = f"https://evals.localhost:{public_port}"
    command = [*bound_python("-c", WITHOUT_WARM_POOL), "ui", "--demo", "--no-open", "--token", TOKEN, "--port", "0"]
    command += ["--workspace", str(folder), "--public-url", address]
    desk = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=os.environ | SLOW
    )
    assert desk.stdout
    assert desk.stderr
    with desk, desk.stdout, desk.stderr:
        listening = desk.stderr.readline()
        port = re.fullmatch(rf"Listening at http://127\.0\.0\.1:(\d+)/ for the proxy of {address}\n", listening)
        assert port, listening
        ready = re.fullmatch(r"Evaldesk ready at (\S+)\n", desk.stdout.readline())
        assert ready
        certificate = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=evals.localhost"]
        files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
        subprocess.run([openssl, *certificate, *files], check=True, capture_output=True)
        (folder / "nginx.conf").write_text(
            NGINX.format(folder=folder, public_port=public_port, desk_port=port[1])
            if os.geteuid()
            else f"user root;{NGINX.format(folder=folder, public_port=public_port, desk_port=port[1])}"
        )
        run = [nginx, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
        subprocess.run(run, check=True, capture_output=True)
        try:
            yield ProxiedDesk(folder, address, ready[1], int(port[1]))
        finally:
            subprocess.run([*run, "-s", "stop"], check=True, capture_output=True)
            desk.terminate()


@pytest.fixture
def page(proxied: ProxiedDesk, browser: Browser) -> Iterator[Page]:
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    page.goto(proxied.first_page)
    yield page
    context.close()


def test_the_printed_address_leads_through_the_proxy_with_a_secure_cookie(proxied: ProxiedDesk, page: Page) -> None:
    cookies = page.context.cookies(proxied.address)

    assert proxied.first_page == f"{proxied.address}/?token={TOKEN}"
    assert page.url == f"{proxied.address}/"
    assert len(cookies) == 2  # of the token and of the last visit
    assert {(each["secure"], each["httpOnly"], each["sameSite"]) for each in cookies} == {(True, True, "Strict")}
    expect(page.get_by_role("heading", name="Home")).to_be_visible()


def test_an_answer_streams_through_the_proxy_piece_by_piece(proxied: ProxiedDesk, page: Page) -> None:
    page.goto(f"{proxied.address}/sessions/new?agent=hello_world")
    page.get_by_role("button", name="Start session").click()
    expect(page.get_by_role("heading", name="Send a message to hello_world")).to_be_visible()
    page.evaluate(
        """() => {
          window.lengths = new Set();
          const look = () => document.querySelector("#live .message[aria-busy=true] > p")?.textContent;
          new MutationObserver(() => look() && window.lengths.add(look().length))
            .observe(document.body, { childList: true, subtree: true, characterData: true });
        }"""
    )
    page.get_by_label("Message").fill("Roll a 12-sided die.")
    page.keyboard.press("Enter")

    page.wait_for_function("() => window.lengths.size > 1")


def test_forms_without_a_script_post_and_come_back_to_the_public_address(
    proxied: ProxiedDesk, browser: Browser
) -> None:
    context = browser.new_context(ignore_https_errors=True, java_script_enabled=False)
    page = context.new_page()
    page.goto(proxied.first_page)
    page.goto(f"{proxied.address}/sessions/new?agent=hello_world")
    page.get_by_label("First message").fill("Roll a 6-sided die.")

    page.get_by_role("button", name="Start session").click()

    assert page.url.startswith(f"{proxied.address}/sessions/")
    context.close()


def test_open_prints_the_public_address(proxied: ProxiedDesk) -> None:
    command = [*bound_python("-m", "evaldesk"), "ui", "--no-open", "--workspace", str(proxied.workspace)]

    ended = subprocess.run(command, capture_output=True, text=True, cwd=proxied.workspace, check=True)

    assert ended.stdout.strip() == f"{proxied.address}/?token={TOKEN}"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Origin": "http://evals.localhost"}, 403),
        ({"Host": "elsewhere.example"}, 400),
        ({}, 303),
    ],
)
def test_another_name_or_site_is_refused_behind_the_proxy_too(
    proxied: ProxiedDesk, page: Page, headers: dict[str, str], status: int
) -> None:
    cookies = "; ".join(f"{each['name']}={each['value']}" for each in page.context.cookies(proxied.address))
    name, _, port = proxied.address.removeprefix("https://").partition(":")
    context = ssl.create_default_context(cafile=proxied.workspace / "cert.pem")
    context.check_hostname = False  # its address is that of loopback
    connection = HTTPSConnection("127.0.0.1", int(port), context=context)
    own = {"Host": f"{name}:{port}", "Cookie": cookies}

    connection.request("POST", "/sessions", b"agent=hello_world", {**own, **FORM, **headers})
    answer = connection.getresponse()
    connection.close()

    assert answer.status == status
