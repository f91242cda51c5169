#!/usr/bin/env python3
"""houses.py [FOLDER]: writes houses.csv, 4,000 invented sales with gaps and words, and new.csv, five houses without a price."""

import os
import random
import sys

folder = sys.argv[1] if len(sys.argv) > 1 else "."
os.makedirs(folder, exist_ok=True)
draw = random.Random(7)
HEATING = {"gas": 0, "oil": -12, "electric": -25}


def house():
    rooms, age = draw.randint(1, 8), draw.randint(0, 120)
    area = round(22 * rooms + draw.gauss(10, 8) + 15)
    heating, garden = draw.choice(list(HEATING)), draw.random() < 0.4
    price = 2.4 * area * (1 - 0.3 * min(age, 60) / 60) + HEATING[heating] * rooms / 4 + (30 if garden else 0)
    return rooms, area, age, heating, garden, price + draw.gauss(0, 8)


with open(os.path.join(folder, "houses.csv"), "w") as file:
    file.write("rooms, area, age, heating, garden, price\n")
    for _ in range(4000):
        rooms, area, age, heating, garden, price = house()
        known = age if draw.random() < 0.95 else "NA"
        file.write("%d, %d, %s, %s, %s, %.1f\n" % (rooms, area, known, heating, str(garden).lower(), price))
with open(os.path.join(folder, "new.csv"), "w") as file:
    file.write("rooms, area, age, heating, garden\n")
    for _ in range(5):
        file.write("%d, %d, %d, %s, %s\n" % (*house()[:4], str(draw.random() < 0.5).lower()))
