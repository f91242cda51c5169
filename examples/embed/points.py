#!/usr/bin/env python3
"""points.py: writes points.csv, two half circles with some noise; no libraries."""

import math
import random

draw = random.Random(1)
with open("points.csv", "w") as file:
    file.write("x,y,label\n")
    for i in range(640):
        label, angle = i % 2, math.pi * draw.random()
        x = math.cos(angle) if label == 0 else 1 - math.cos(angle)
        y = math.sin(angle) if label == 0 else 0.5 - math.sin(angle)
        file.write("%.6f,%.6f,%d\n" % (x + draw.gauss(0, 0.1), y + draw.gauss(0, 0.1), label))
