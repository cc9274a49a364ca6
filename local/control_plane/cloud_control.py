"""Answer Cloud Control API's GetResource for reservations, which the CDK's look-ups call and moto lacks."""

import json
from datetime import datetime
from typing import Any, Final

from moto.ec2.exceptions import EC2ClientError
from werkzeug.wrappers import Response

from local.control_plane.api_request import ApiRequest
from local.control_plane.ec2 import capacity_reservations

SERVICE: Final = "cloudcontrolapi"
RESERVATION: Final = "AWS::EC2::CapacityReservation"


def answer(request: ApiRequest) -> Response:
    """Answer an authorized call."""
    kind, name = request.parameters.get("TypeName"), str(request.parameters.get("Identifier"))
    if request.action != "GetResource" or kind != RESERVATION:
        return _refused("UnsupportedActionException", f"the local AWS has no {request.action} of {kind}")
    try:
        description = capacity_reservations.find(name).described()
    except EC2ClientError as error:
        return _refused("ResourceNotFoundException", error.message)
    properties = json.dumps({key: _plain(value) for key, value in description.items()})
    return _json({"TypeName": kind, "ResourceDescription": {"Identifier": name, "Properties": properties}})


def _plain(value: Any) -> Any:
    return f"{value:%Y-%m-%dT%H:%M:%SZ}" if isinstance(value, datetime) else value


def _json(body: dict[str, Any], *, status: int = 200) -> Response:
    return Response(json.dumps(body), status=status, content_type="application/x-amz-json-1.0")


def _refused(code: str, message: str) -> Response:
    return _json({"__type": f"com.amazonaws.cloudcontrol#{code}", "message": message}, status=400)
