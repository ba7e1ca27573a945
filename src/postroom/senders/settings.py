"""The settings of senders, read from the environment by `postroom.settings`."""

from dataclasses import dataclass

from postroom.runtime.setting import http_url, setting, switch


@dataclass(frozen=True, kw_only=True)
class SendersSettings:
    senders_allow_private: bool = setting(
        switch, default=False, about="let sender accounts name SMTP servers on loopback and in private networks"
    )
    gmail_base_url: str | None = setting(http_url, None, "base URL of the Gmail API; absent: Google's")
    ses_endpoint_url: str | None = setting(http_url, None, "endpoint URL of Amazon SES; absent: Amazon's")
    kms_key_id: str | None = setting(str, None, "id of the AWS KMS key that encrypts the credentials of senders")
    kms_region: str | None = setting(str, None, "region of that key; absent: AWS_REGION")
    kms_access_key_id: str | None = setting(str, None, "AWS access key id used for KMS; absent: AWS's default chain")
    kms_secret_access_key: str | None = setting(str, None, "secret of that access key", secret=True)
    kms_endpoint_url: str | None = setting(http_url, None, "endpoint URL of AWS KMS; absent: Amazon's")
