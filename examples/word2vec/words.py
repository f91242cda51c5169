#!/usr/bin/env python3
"""words.py FOLDER [TEXT ..]: the 1,000 most frequent words of texts (default: the licences of this machine), and for each place a word with
the two words on either side of it: centre.npy, around.npy, words.txt. Needs NumPy."""

import collections
import glob
import os
import re
import sys

import numpy as np

folder, files = sys.argv[1], sys.argv[2:] or sorted(glob.glob("/usr/share/common-licenses/*"))
os.makedirs(folder, exist_ok=True)
text = " ".join(open(name, errors="replace").read() for name in files if os.path.isfile(name))
words = re.findall(r"[a-z]+", text.lower())
known = [word for word, _ in collections.Counter(words).most_common(999)] + ["<other>"]
number = {word: i for i, word in enumerate(known)}
ids = np.array([number.get(word, 999) for word in words], np.int32)
places = [i for i in range(2, len(ids) - 2) if ids[i] != 999]
np.save(folder + "/centre.npy", ids[places])
np.save(folder + "/around.npy", np.stack([ids[np.array(places) + d] for d in (-2, -1, 1, 2)], axis=1))
with open(folder + "/words.txt", "w") as file:
    file.write("\n".join(known) + "\n")
