import importlib.util
import pathlib
import unittest

from invoice.total import total


class HiddenTest(unittest.TestCase):
    def test_the_sum_is_rounded_once(self):
        self.assertEqual(total([("100", "0.333")] * 3), 100)
        self.assertEqual(total([("1", "0.4")] * 5), 2)
        self.assertEqual(total([("1", "0.5")] * 2), 1)
        self.assertEqual(total([("100", "0.335")] * 2), 67)

    def test_a_half_is_still_rounded_up(self):
        self.assertEqual(total([("1", "0.5")]), 1)
        self.assertEqual(total([("1", "2.5")]), 3)
        self.assertEqual(total([]), 0)

    def test_the_existing_test_states_the_new_rule(self):
        path = pathlib.Path("tests/test_total.py")
        spec = importlib.util.spec_from_file_location("team_tests", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        case = module.TotalTest("test_three_thirds_of_a_price")
        result = case.run()
        self.assertTrue(result.wasSuccessful())
        self.assertEqual(result.skipped, [])
        self.assertNotIn("99)", path.read_text())
        for name in ["test_whole_quantities_add_up", "test_a_half_is_rounded_up"]:
            self.assertTrue(hasattr(module.TotalTest, name), name)
