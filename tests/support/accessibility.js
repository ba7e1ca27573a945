// Accessibility rules of a page, after those of axe-core; returns the problems, empty if there are none.
() => {
    const problems = [];
    const all = (selector, root = document) => [...root.querySelectorAll(selector)];
    const short = (element) => element.outerHTML.replace(/\s+/g, " ").slice(0, 120);
    const isShown = (element) => element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
    const isHidden = (element) => element.closest("[aria-hidden=true], [hidden], .unseen, .skip") !== null;
    const report = (rule, elements) => problems.push(...elements.map((each) => `${rule}: ${short(each)}`));
    const nameOf = (element) => (element.ariaLabel || (element.getAttribute("aria-labelledby") || "").split(" ")
        .map((id) => document.getElementById(id)?.textContent || "").join("") || element.textContent || "").trim();

    // The document
    if (!document.documentElement.lang) problems.push("html-has-lang");
    if (!document.title.trim()) problems.push("document-title");
    if (all("main").length !== 1) problems.push("landmark-one-main");
    if (all("h1").filter(isShown).length !== 1) problems.push("page-has-heading-one");
    if (all("[tabindex]").some((each) => each.tabIndex > 0)) problems.push("tabindex");
    report("landmark-unique", all("nav").filter((each) => isShown(each) && !nameOf2(each)));
    const ids = all("[id]").map((each) => each.id);
    report("duplicate-id", all("[id]").filter((each) => ids.indexOf(each.id) !== ids.lastIndexOf(each.id)));
    const refers = all("[aria-labelledby], [aria-describedby], label[for]");
    const idsOf = (each) => ["aria-labelledby", "aria-describedby", "for"]
        .flatMap((name) => (each.getAttribute(name) || "").split(" ")).filter(Boolean);
    report("valid-reference", refers.filter((each) => idsOf(each).some((id) => !document.getElementById(id))));

    // Headings follow one another without a gap
    const levels = all("h1, h2, h3, h4, h5, h6").filter(isShown);
    report("heading-order", levels.filter((each, index) => index && each.tagName[1] > +levels[index - 1].tagName[1] + 1));

    // Names of controls, links, pictures and frames
    const controls = all("input:not([type=hidden]), select, textarea").filter((each) => !each.hidden);
    report("label", controls.filter((each) => !each.labels.length && !nameOf2(each)));
    report("button-name", all("button, summary").filter((each) => !nameOf(each)));
    report("link-name", all("a[href]").filter((each) => !nameOf(each)));
    report("image-alt", all("img:not([alt])"));
    report("svg-img-alt", all("svg[role=img]").filter((each) => !each.ariaLabel && !each.querySelector("title")));
    report("frame-title", all("iframe").filter((each) => !each.title));

    // Lists and tables
    report("list", all("ul > :not(li), ol > :not(li), dl > :not(div, dt, dd)"));
    report("table-header", all("table").filter((each) => !each.querySelector("th")));
    report("scope-attr-valid", all("th:not([scope])"));

    // Width
    if (document.documentElement.scrollWidth > innerWidth) problems.push("wider than the window");

    // A cell of a card is a grid of its label and one box: a second one would be under the label
    const isPart = (node) => node.nodeType === Node.ELEMENT_NODE || node.textContent.trim() !== "";
    report("cell-parts", all("td[data-label]").filter((cell) => getComputedStyle(cell).display === "grid"
        && [...cell.childNodes].filter(isPart).length > 1));

    // Contrast of text with the colors behind it
    const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 })
        .getContext("2d", { willReadFrequently: true });
    const parsed = {};
    const rgba = (color) => parsed[color] ||= (() => {
        context.clearRect(0, 0, 1, 1);
        context.fillStyle = color;
        context.fillRect(0, 0, 1, 1);
        const [red, green, blue, alpha] = context.getImageData(0, 0, 1, 1).data;
        return [red, green, blue, alpha / 255];
    })();
    const over = (top, bottom) => [0, 1, 2].map((index) => top[index] * top[3] + bottom[index] * (1 - top[3]));
    const behind = (element) => {
        if (!element) return rgba(getComputedStyle(document.documentElement).colorScheme.includes("dark") &&
            matchMedia("(prefers-color-scheme: dark)").matches ? "#000" : "#fff").slice(0, 3);
        const color = rgba(getComputedStyle(element).backgroundColor);
        return color[3] === 1 ? color.slice(0, 3) : over(color, behind(element.parentElement));
    };
    const light = (color) => {
        const [red, green, blue] = color.map((each) => each / 255)
            .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const ratio = (one, other) => {
        const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    };
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const seen = new Set();
    for (let node = texts.nextNode(); node; node = texts.nextNode()) {
        const element = node.parentElement;
        if (!node.data.trim() || seen.has(element) || isHidden(element) || !isShown(element)) continue;
        seen.add(element);
        const style = getComputedStyle(element);
        if (element.closest(":disabled, option, title, script, style")) continue;
        const isSvg = element instanceof SVGElement;
        const paper = behind(isSvg ? element.closest("svg").parentElement : element);
        const ink = over(rgba(isSvg ? style.fill : style.color), paper);
        const size = parseFloat(style.fontSize), bold = +style.fontWeight >= 700;
        const needed = size >= 24 || (bold && size >= 18.66) ? 3 : 4.5;
        const found = ratio(ink, paper);
        if (found < needed) problems.push(`color-contrast ${found.toFixed(2)}: ${short(element)}`);
    }

    // Focus is visible: the test has pressed Tab before, so that focusing by script counts as by keyboard
    const kinds = new Set();
    for (const each of all("a[href], button, summary, input:not([type=hidden]), select, textarea")) {
        const kind = `${each.tagName} ${each.type || ""} ${each.className}`;
        if (kinds.has(kind) || !isShown(each) || isHidden(each)) continue;
        kinds.add(kind);
        each.focus({ preventScroll: true });
        if (document.activeElement !== each) continue;
        const style = getComputedStyle(each);
        if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 1) problems.push(`focus-visible: ${short(each)}`);
    }
    document.activeElement?.blur();
    return [...new Set(problems)];

    function nameOf2(element) {
        return element.ariaLabel || element.getAttribute("aria-labelledby");
    }
}
