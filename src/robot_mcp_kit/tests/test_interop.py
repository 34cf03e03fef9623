"""Another implementation of the scheme, the npm package `standardwebhooks`, judges ours."""

import base64
import json
import shutil
import subprocess
from datetime import UTC, datetime

import pytest

from robot_mcp_kit import sign, verify

BODY = json.dumps(
    {"payload": {"label": "tür offen ☕ 🤖", "score": 0.1 + 0.2, "tiny": 5e-324}},
    ensure_ascii=False,
).encode()

SCRIPT = """
const { Webhook } = require("standardwebhooks");
const { secret, body, headers } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const webhook = secret.startsWith("whsec_")
  ? new Webhook(secret)
  : new Webhook(new Uint8Array(Buffer.from(secret, "utf8")), { format: "raw" });
const raw = Buffer.from(body, "base64");
let verdict = "accepted";
try { webhook.verify(raw, headers); } catch (error) { verdict = error.message; }
const time = new Date(Number(headers["webhook-timestamp"]) * 1000);
const signature = webhook.sign(headers["webhook-id"], time, raw);
process.stdout.write(JSON.stringify({ verdict, signature }));
"""

SECRETS = pytest.mark.parametrize(
    "secret", ["whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "plain pässword"]
)


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not installed")
    folder = tmp_path_factory.mktemp("node")
    options = [
        "--prefer-offline",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--fetch-retries=0",
    ]
    install = [npm, "install", *options, "--prefix", str(folder), "standardwebhooks@1.0.0"]
    try:
        subprocess.run(install, cwd=folder, check=True, capture_output=True, timeout=12)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"npm did not install standardwebhooks: {type(error).__name__}")

    def run(secret, body, headers):
        question = {
            "secret": secret,
            "body": base64.b64encode(body).decode(),
            "headers": headers,
        }
        answer = subprocess.run(
            [node, "-e", SCRIPT],
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=10,
            input=json.dumps(question).encode(),
        )
        return json.loads(answer.stdout)

    return run


@SECRETS
def test_other_implementation_accepts_our_signature(judge, secret):
    # It reads the wall clock, so this message is signed by it too.
    signed_at = datetime.now(UTC)
    headers = sign(BODY, msg_id="evt_1", timestamp=signed_at, secrets=["rotated out", secret])

    assert judge(secret, BODY, headers)["verdict"] == "accepted"
    assert judge(secret, BODY + b" ", headers)["verdict"] == "No matching signature found"


@SECRETS
def test_signature_of_other_implementation_verifies(judge, secret):
    headers = {"webhook-id": "evt_1", "webhook-timestamp": "1785196800", "webhook-signature": "-"}
    headers["webhook-signature"] = judge(secret, BODY, headers)["signature"]

    assert verify(BODY, headers, secrets=[secret], now=1_785_196_800).msg_id == "evt_1"
