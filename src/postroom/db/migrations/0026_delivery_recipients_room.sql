-- Every recipient is written once more, when it is known what became of it. With room beside it on its page that touches
-- no index: a page filled to the brim sent five in six of them to another page, with two index entries each. What is there
-- stays as it is; new pages are filled half, which the second version used to take elsewhere.

ALTER TABLE delivery_recipients SET (fillfactor = 50);
