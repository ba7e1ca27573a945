"""Creation of the sealer and the transport factory from the settings."""

from postroom.db.room import Room
from postroom.errors import SettingInvalid
from postroom.runtime.aws import AwsCredentials, CredentialSource
from postroom.runtime.aws_credentials import CredentialChain, find_region
from postroom.senders.factory import ProviderAddresses
from postroom.senders.kms import KmsSealer
from postroom.senders.seal import LocalSealer, Sealer, Sealers
from postroom.senders.service import Tools
from postroom.settings import Settings


def tools_of(room: Room) -> Tools:
    """Return the tools for these settings: the installation's own key or AWS KMS, and each provider's address."""
    settings = room.settings
    ways_out = ProviderAddresses(
        local_name=settings.message_domain,
        connections=settings.smtp_connections,
        gmail_base_url=settings.gmail_base_url,
        ses_endpoint_url=settings.ses_endpoint_url,
        allow_private=settings.senders_allow_private,
    )
    return Tools(
        sealer_of(settings),
        ways_out,
        allow_private=settings.senders_allow_private,
        gmail_base_url=settings.gmail_base_url,
    )


def sealer_of(settings: Settings) -> Sealer:
    """Return the sealer. Previous keys, and the installation's own key after a move to KMS, still open old secrets."""
    local = LocalSealer.from_keys(*settings.sealing_keys)
    if settings.kms_key_id is None:
        return local
    region = settings.kms_region or find_region()
    if region is None:
        raise SettingInvalid("POSTROOM_KMS_KEY_ID", "needs POSTROOM_KMS_REGION or AWS_REGION")
    kms = KmsSealer(
        key_id=settings.kms_key_id,
        region=region,
        credentials=_kms_credentials(settings),
        endpoint_url=settings.kms_endpoint_url,
    )
    return Sealers(kms, local)


def _kms_credentials(settings: Settings) -> CredentialSource:
    """The access key of the settings; without one, AWS's default credential chain."""
    if settings.kms_access_key_id is None and settings.kms_secret_access_key is None:
        return CredentialChain()
    if settings.kms_access_key_id is None or settings.kms_secret_access_key is None:
        needed = "needs both POSTROOM_KMS_ACCESS_KEY_ID and POSTROOM_KMS_SECRET_ACCESS_KEY, or neither"
        raise SettingInvalid("POSTROOM_KMS_KEY_ID", needed)
    return AwsCredentials(settings.kms_access_key_id, settings.kms_secret_access_key)
