"""The tools of an installation, made of its settings: what seals secrets and what makes ways out."""

from postroom.db.room import Room
from postroom.errors import SettingInvalid
from postroom.runtime.aws import AwsCredentials
from postroom.senders.factory import WaysOut
from postroom.senders.kms import KmsSealer
from postroom.senders.seal import LocalSealer, Sealer, Sealers
from postroom.senders.service import Tools
from postroom.settings import Settings


def tools_of(room: Room) -> Tools:
    """What the settings name: the installation's own key or AWS KMS, and every provider at its address."""
    settings = room.settings
    ways_out = WaysOut(
        local_name=settings.message_domain,
        connections=settings.smtp_connections,
        gmail_base_url=settings.gmail_base_url,
        ses_endpoint_url=settings.ses_endpoint_url,
    )
    return Tools(sealer_of(settings), ways_out)


def sealer_of(settings: Settings) -> Sealer:
    """Keys of before still open what they sealed; so does the installation's own key after a move to KMS."""
    local = LocalSealer.from_keys(settings.secret_key, *settings.old_secret_keys)
    if settings.kms_key_id is None:
        return local
    if settings.kms_access_key_id is None or settings.kms_secret_access_key is None or settings.kms_region is None:
        needed = "needs POSTROOM_KMS_REGION, POSTROOM_KMS_ACCESS_KEY_ID and POSTROOM_KMS_SECRET_ACCESS_KEY"
        raise SettingInvalid("POSTROOM_KMS_KEY_ID", needed)
    kms = KmsSealer(
        key_id=settings.kms_key_id,
        region=settings.kms_region,
        credentials=AwsCredentials(settings.kms_access_key_id, settings.kms_secret_access_key),
        endpoint_url=settings.kms_endpoint_url,
    )
    return Sealers(kms, local)
