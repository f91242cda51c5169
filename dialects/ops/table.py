#!/usr/bin/python3
"""Makes Ops.inc, the table of the ops, out of what `llvm-tblgen --dump-json` says about the definitions.

usage: table.py DEFINITIONS.json TABLE.inc

The file has sections, each for who defines its macro: OP(kind), FORMULA(kind, function, operands, weight), ATTRIBUTE(name),
ENUM(type, values), VALUE(type, value, text), ATTRIBUTE_ENUM(type), and the rows of the table itself behind OP_TABLE.
"""

import json
import sys

KINDS = {
    "I64Attr": "Integer",
    "F64Attr": "Number",
    "UnitAttr": "Flag",
    "DenseI64ArrayAttr": "Integers",
    "DenseF64ArrayAttr": "Numbers",
    "TypedArrayAttrBase": "Lists",
    "NN_EnumAttr": "Choice",
}
ELEMENTS = {"F32": "F32", "F64": "F64", "I32": "I32", "I1": "Bool", "BF16": "BF16"}


def capital(name):
    return name[0].upper() + name[1:]


def symbol(enumerator):
    return enumerator["symbol"].replace("_", "")


class Table:
    def __init__(self, records):
        self.records = records

    def of(self, reference):
        return self.records[reference["def"]]

    def is_a(self, record, name):
        return record["!name"] == name or name in record["!superclasses"]

    def instances(self, name):
        """In the order of the definitions."""

        def place(record):
            file, line = record["!locs"][0].rsplit(":", 1)
            return file, int(line)

        return sorted((self.records[key] for key in self.records["!instanceof"][name]), key=place)

    def value(self, entry):
        """An operand or a result."""
        record, name = self.of(entry[0]), entry[1]
        count = next((c for c in ("Optional", "Variadic") if self.is_a(record, c)), "One")
        if count != "One":
            record = self.of(record["baseType"])
        types = " | ".join("bit(DType::%s)" % ELEMENTS[element["def"]] for element in record["elementTypes"])
        return '{"%s", %s, Count::%s}' % (name, types, count)

    def attribute(self, entry):
        record, name = self.of(entry[0]), entry[1]
        optional, default = self.is_a(record, "OptionalAttr"), ""
        if self.is_a(record, "DefaultValuedAttr"):
            default = record["defaultValue"]
        if optional or default:
            record = self.of(record["baseAttr"])
        kind = next((kind for key, kind in KINDS.items() if self.is_a(record, key)), None)
        if kind is None:
            return None  # an attribute that only MLIR's side reads
        choice = "ChoiceType::" + self.of(record["enum"])["className"] if kind == "Choice" else "ChoiceType::None"
        if kind == "Flag":
            value = "false"
        elif default:
            value = "double(%s)" % default if kind == "Number" else "int64_t(%s)" % default
        else:
            value = "{}"
        return '{Key::%s, "%s", AttrKind::%s, %s, %s, %s}' % (
            capital(name), name, kind, choice, "true" if optional else "false", value)

    def row(self, op):
        arguments = op["arguments"]["args"]
        operands = [self.value(a) for a in arguments if self.is_a(self.of(a[0]), "TypeConstraint")]
        attributes = [self.attribute(a) for a in arguments if self.is_a(self.of(a[0]), "AttrConstraint")]
        traits = {trait["def"] for trait in op["traits"]}
        flags = [trait in traits
                 for trait in ("Elementwise", "SameOperandsAndResultType", "InferTypeOpAdaptor", "NN_NoGradient")]
        return '{"%s", %s, {%s}, {%s}, {%s}},' % (
            op["opName"], ", ".join("true" if flag else "false" for flag in flags), ", ".join(operands),
            ", ".join(filter(None, attributes)), ", ".join(self.value(r) for r in op["results"]["args"]))

    def text(self):
        ops = self.instances("NN_Op")
        kind = lambda op: op["!name"][len("NN_"):-len("Op")]
        keys = sorted({a[1] for op in ops for a in op["arguments"]["args"] if self.is_a(self.of(a[0]), "AttrConstraint")
                       and self.attribute(a)})
        formulas = [op for op in ops if self.is_a(op, "NN_Formula")]
        choices = self.instances("NN_Enum")
        sections = {
            "OP": ["OP(%s)" % kind(op) for op in ops],
            "FORMULA": ["FORMULA(%s, %s, %d, %d)" % (kind(op), op["opName"], len(op["arguments"]["args"]),
                                                     op["weightOfElement"]) for op in formulas],
            "ATTRIBUTE": ["ATTRIBUTE(%s)" % capital(key) for key in keys],
            "ENUM": ["ENUM(%s, %s)" % (c["className"], ", ".join(symbol(self.of(v)) for v in c["enumerants"]))
                     for c in choices],
            "VALUE": ['VALUE(%s, %s, "%s")' % (c["className"], symbol(self.of(v)), self.of(v)["str"])
                      for c in choices for v in c["enumerants"]],
            "ATTRIBUTE_ENUM": ["ATTRIBUTE_ENUM(%s)" % self.of(a["enum"])["className"]
                               for a in self.instances("NN_EnumAttr")],
            "OP_TABLE": [self.row(op) for op in ops],
        }
        lines = ["// Made by dialects/ops/table.py from the definitions in dialects/nn."]
        for name, section in sections.items():
            lines += ["#ifdef " + name] + section + ["#undef " + name, "#endif"]
        return "\n".join(lines) + "\n"


def main():
    with open(sys.argv[1]) as file:
        table = Table(json.load(file))
    with open(sys.argv[2], "w") as file:
        file.write(table.text())


main()
