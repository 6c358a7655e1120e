"""python -m reproductions.peers [joeynmt] [longformer] [performer] [generate] [attention_interface]: what is named, or all.

Runs in an environment of its own, .venv-peers, whose Python has the peers and torch but not all that this project needs.
"""

import sys
from collections.abc import Sequence

from reproductions.peers import attention_interface, generate, joeynmt, longformer, performer

PEERS = {
    "joeynmt": joeynmt.main,
    "longformer": longformer.main,
    "performer": performer.main,
    "generate": generate.main,
    "attention_interface": attention_interface.main,
}


def main(names: Sequence[str]) -> int:
    for name in names:
        if name not in PEERS:
            print(f"error: got {name!r}, expected of {', '.join(PEERS)}", file=sys.stderr)
            return 2
    for name in names or PEERS:
        PEERS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
