"""Gives way to the installed package of this name, else to Evaldesk's stand-in."""

from evaldesk.integrations.openhands.standins import replace_package

replace_package(__name__, __file__)
