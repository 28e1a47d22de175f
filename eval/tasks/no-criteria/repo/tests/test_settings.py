import json
import pathlib
import tempfile
import unittest

from settings import SettingsError, load


class SettingsTest(unittest.TestCase):
    def file(self, values):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name, "settings.json")
        path.write_text(json.dumps(values))
        return path

    def test_settings_are_read(self):
        self.assertEqual(load(self.file({"host": "a", "port": 1})), {"host": "a", "port": 1})

    def test_a_missing_host_is_an_error_that_names_the_file(self):
        with self.assertRaisesRegex(SettingsError, "settings.json: host is missing"):
            load(self.file({"port": 1}))


if __name__ == "__main__":
    unittest.main()
