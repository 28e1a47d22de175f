"""Runs the tests and writes a JUnit report to the file that REPORT names."""

import os
import sys
import unittest
from xml.sax.saxutils import quoteattr


class Result(unittest.TextTestResult):
    cases = []

    def note(self, test, inside):
        where, _, name = test.id().rpartition(".")
        case = f"<testcase classname={quoteattr(where)} name={quoteattr(name)}>{inside}</testcase>"
        self.cases.append(case)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, "")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "<skipped/>")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note(test, '<failure message="it failed"/>')

    def addError(self, test, error):
        super().addError(test, error)
        self.note(test, '<error message="it broke"/>')


suite = unittest.defaultTestLoader.discover("tests", top_level_dir=".")
ran = unittest.TextTestRunner(resultclass=Result).run(suite)
cases = "".join(Result.cases)
with open(os.environ.get("REPORT", os.devnull), "w") as report:
    report.write(f'<testsuites><testsuite name="shop">{cases}</testsuite></testsuites>')
sys.exit(not ran.wasSuccessful())
