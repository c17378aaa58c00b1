//! The one formatter: significant digits per unit, for reports and snapshots alike.
