"""Functions that an operator installs, and pipelines call.

A package lists them in the entry point group `hifi.functions`, each by its name in documents:

    [project.entry-points."hifi.functions"]
    "fraud.score" = "hifi_fraud:score"
"""

from pipelines.functions.function import Function, function
from pipelines.functions.reducer import Reducer

__all__ = ["Function", "Reducer", "function"]
