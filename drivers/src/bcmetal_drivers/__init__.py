"""Redfish and IPMI drivers: capabilities as small Protocols, and an emulated rack."""
