"""Every algorithm's section is known once the algorithms are: any one of these tests may be run alone."""

import mrtf_fedml.algorithms  # noqa: F401
