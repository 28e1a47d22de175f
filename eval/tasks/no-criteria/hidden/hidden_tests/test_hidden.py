import json
import pathlib
import tempfile
import unittest

from settings import SettingsError, load


class HiddenTest(unittest.TestCase):
    def file(self, values):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name, "my-settings.json")
        path.write_text(json.dumps(values))
        return path

    def test_a_missing_port_is_the_default(self):
        self.assertEqual(load(self.file({"host": "a"})), {"host": "a", "port": 8080})

    def test_a_given_port_counts(self):
        self.assertEqual(load(self.file({"host": "a", "port": 1}))["port"], 1)
        self.assertEqual(load(self.file({"host": "a", "port": "81"}))["port"], 81)
        self.assertEqual(load(self.file({"host": "a", "port": 0}))["port"], 0)

    def test_a_port_that_is_no_number_is_an_error_that_names_the_file(self):
        for port in ["http", "", [], {}, None]:
            with self.assertRaisesRegex(SettingsError, "my-settings.json", msg=repr(port)):
                load(self.file({"host": "a", "port": port}))

    def test_a_missing_host_is_still_an_error(self):
        with self.assertRaisesRegex(SettingsError, "my-settings.json: host is missing"):
            load(self.file({}))
