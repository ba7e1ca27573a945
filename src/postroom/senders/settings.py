"""The settings of senders, read from the environment by `postroom.settings`."""

from dataclasses import dataclass

from postroom.runtime.setting import http_url, setting, switch


@dataclass(frozen=True, kw_only=True)
class SendersSettings:
    """The settings of senders."""

    senders_allow_private: bool = setting(
        "POSTROOM_SENDERS_ALLOW_PRIVATE",
        switch,
        default=False,
        about="let sender accounts name SMTP servers on loopback and in private networks",
    )
    gmail_base_url: str | None = setting(
        "POSTROOM_GMAIL_BASE_URL", http_url, None, "base URL of the Gmail API; absent: Google's"
    )
    ses_endpoint_url: str | None = setting(
        "POSTROOM_SES_ENDPOINT_URL", http_url, None, "endpoint URL of Amazon SES; absent: Amazon's"
    )
    kms_key_id: str | None = setting(
        "POSTROOM_KMS_KEY_ID", str, None, "id of the AWS KMS key that encrypts the credentials of senders"
    )
    kms_region: str | None = setting("POSTROOM_KMS_REGION", str, None, "region of that key; absent: AWS_REGION")
    kms_access_key_id: str | None = setting(
        "POSTROOM_KMS_ACCESS_KEY_ID", str, None, "AWS access key id used for KMS; absent: AWS's default chain"
    )
    kms_secret_access_key: str | None = setting(
        "POSTROOM_KMS_SECRET_ACCESS_KEY", str, None, "secret of that access key", secret=True
    )
    kms_endpoint_url: str | None = setting(
        "POSTROOM_KMS_ENDPOINT_URL", http_url, None, "endpoint URL of AWS KMS; absent: Amazon's"
    )
