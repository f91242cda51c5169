"""The floor of a step: how long its products, convolutions and attention take if every FMA of the machine's peak is one of theirs.

Their operations are those of the plan (`cinch plan --json`), which counts attention's causal half and everything of a loop over time; of
convolutions what lies outside of an image is left out. Those by Winograd's minimal filtering count with all of their 16 products for 2 x 2 outputs.
The peak is that of FMAs on registers alone (`bench_peak`), measured beside the steps.
"""
import os
import re
import subprocess

from harness import programs

PRODUCTS = ("product", "attention", "attention_grad")
CONV = re.compile(r"nn\.conv +(\w+) .*stride \[(\d+), (\d+)\] pad \[(\d+), (\d+)\] dilate \[(\d+), (\d+)\](.*) : "
                  r"\(tensor<([\dx]+)x\w+[^)]*?>, tensor<([\dx]+)x\w+[^)]*?>\) -> tensor<([\dx]+)x\w+")


def pairs_inside(places, size, window, stride, pad, dilate):
    """Pairs of a place and a tap that meet the image, along one axis."""
    return sum(0 <= place * stride + tap * dilate - pad < size for place in range(places) for tap in range(window))


def outside(text):
    """Operations of a step's convolutions that meet what lies outside of their images, counted as the plan counts them."""
    count = 0
    for gives, *numbers, left, right, result in CONV.findall(text):
        stride, pad, dilate, attributes = numbers[0:2], numbers[2:4], numbers[4:6], numbers[6]
        if "nn.winograd" in attributes:
            continue
        shapes = {"left": left, "right": right, "result": result}
        roles = {"output": ("left", "right", "result"), "image": ("result", "right", "left"), "filter": ("left", "result", "right")}[gives]
        image, window, output = ([int(size) for size in shapes[role].split("x")] for role in roles)
        all_pairs, inside = 1, 1
        for axis in (0, 1):
            step, before, apart = int(stride[axis]), int(pad[axis]), int(dilate[axis])
            all_pairs *= output[1 + axis] * window[axis]
            inside *= pairs_inside(output[1 + axis], image[1 + axis], window[axis], step, before, apart)
        count += 2 * image[0] * (all_pairs - inside) * window[2] * window[3]
    return count


def training(text):
    """Of a printed program what a step of training does: evaluation and prediction have convolutions of their own."""
    return re.search(r"func\.func @train\b.*?(?=func\.func @|\Z)", text, re.DOTALL)[0]


def operations(source, *options):
    """Floating-point operations of the products, convolutions and attention of a step."""
    plan = programs.plan(source, *options, "--memory-budget", "1000GiB")
    count = sum(kernel["flops"][0] + plan["batch"] * kernel["flops"][1] for kernel in plan["kernels"]
                if kernel["work"] in PRODUCTS or re.search(r"\bscan\b", kernel["name"]))
    done = subprocess.run([programs.CINCH, str(source), *options, "--stop-after", "differentiated"], capture_output=True, text=True)
    if done.returncode:
        raise programs.Failed(f"cinch {source}: exit {done.returncode}\n{done.stderr[:2000]}")
    return count - outside(training(done.stdout))


def peak(threads, precision):
    """Operations a second of FMAs on registers, by so many threads at once."""
    exe = programs.BUILD / "bin" / "bench_peak"
    if not exe.exists():
        # Benchmarks have no folder for caches (programs.py), without which ccache fails.
        built = subprocess.run(["ninja", "-C", str(programs.BUILD), "bench_peak"], env={**os.environ, "CCACHE_DISABLE": "1"}, capture_output=True, text=True)
        if built.returncode:
            raise programs.Failed("bench_peak cannot be built:\n" + built.stdout[-2000:])
    done = subprocess.run([str(exe), "--threads", str(threads)], capture_output=True, text=True)
    found = re.search(rf"RESULT peak\.{precision} ([\d.]+)", done.stdout)
    return float(found.group(1)) * 1e9 if found else None
