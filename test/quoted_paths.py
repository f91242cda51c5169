"""How lit runs a test of this folder: the paths that stand for %s, %S, %t and %root are one word of the shell each, also where the checkout's path
has blanks."""
import os
import shlex

import lit.formats
import lit.TestRunner


class QuotedPaths(lit.formats.ShTest):
    def __init__(self, root):
        super().__init__(execute_external=True)
        self.root = root

    def execute(self, test, litConfig):
        source, made = test.getSourcePath(), lit.TestRunner.getTempPaths(test)[1] + ".tmp"
        paths = [("%root", self.root), ("%s", source), ("%S", os.path.dirname(source)), ("%t", made)]
        return lit.TestRunner.executeShTest(test, litConfig, self.execute_external, [(name, shlex.quote(path)) for name, path in paths])
