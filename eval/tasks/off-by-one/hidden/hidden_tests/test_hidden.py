import unittest

from shelf.pages import has_next, page, page_count


class HiddenTest(unittest.TestCase):
    def test_full_pages_are_counted_once(self):
        for total, size, pages in [(20, 10, 2), (10, 10, 1), (3, 1, 3), (6, 3, 2)]:
            self.assertEqual(page_count(total, size), pages, (total, size))

    def test_started_pages_are_counted(self):
        for total, size, pages in [(1, 10, 1), (11, 10, 2), (14, 10, 2), (16, 10, 2), (19, 10, 2)]:
            self.assertEqual(page_count(total, size), pages, (total, size))

    def test_no_items_are_no_pages(self):
        self.assertEqual(page_count(0, 10), 0)
        self.assertFalse(has_next(0, 10, 1))

    def test_no_page_follows_a_full_last_page(self):
        self.assertTrue(has_next(20, 10, 1))
        self.assertFalse(has_next(20, 10, 2))

    def test_every_counted_page_has_items(self):
        for total in range(40):
            items = list(range(total))
            pages = [page(items, number, 7) for number in range(1, page_count(total, 7) + 1)]
            self.assertTrue(all(pages), total)
            self.assertEqual(sum(pages, []), items)
