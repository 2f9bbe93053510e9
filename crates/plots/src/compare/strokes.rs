//! A font of lines, as pen plotters have it, for pictures made of pixels. Letters are drawn on a
//! grid: the base line is at 4, small letters reach 12, capitals 16; descenders reach 0.

/// The grid's height of a capital, in units: the size of a font is 1.4 times that.
const UNITS: f64 = 17.0;

/// Space after a glyph, in units.
const SPACE: f64 = 3.2;

/// Width of a space, in units.
const BLANK: f64 = 5.0;

/// Lines of each glyph; `;` separates them. A point is two digits to base 36: x and y.
#[rustfmt::skip]
const GLYPHS: &[(char, &str)] = &[
    ('0', "24 64 87 8d 6g 2g 0d 07 24"),
    ('1', "1d 4g 44;14 74"),
    ('2', "0d 2g 6g 8d 8b 04 84"),
    ('3', "0e 2g 6g 8e 8c 6a 3a;6a 88 86 64 24 06"),
    ('4', "64 6g 08 88"),
    ('5', "7g 1g 0b 6b 89 86 64 24 05"),
    ('6', "7g 3g 0c 06 24 64 86 89 6b 2b 09"),
    ('7', "0g 8g 34"),
    ('8', "2a 0c 0e 2g 6g 8e 8c 6a 2a 08 06 24 64 86 88 6a"),
    ('9', "14 54 88 8e 6g 2g 0e 0b 29 69 8b"),
    ('a', "8c 84;8a 6c 2c 0a 06 24 64 86"),
    ('b', "0g 04;06 24 64 86 8a 6c 2c 0a"),
    ('c', "8b 6c 2c 0a 06 24 64 85"),
    ('d', "8g 84;8a 6c 2c 0a 06 24 64 86"),
    ('e', "08 88 8a 6c 2c 0a 06 24 64 85"),
    ('f', "6g 4g 2e 24;0c 5c"),
    ('g', "8c 82 60 20 01;8a 6c 2c 0a 06 24 64 86"),
    ('h', "0g 04;0a 2c 6c 8a 84"),
    ('i', "14 1c;1f 1g"),
    ('j', "3c 31 10 00;3f 3g"),
    ('k', "0g 04;7c 07;29 74"),
    ('l', "1g 14"),
    ('m', "0c 04;0a 2c 4c 5a 54;5a 7c 9c aa a4"),
    ('n', "0c 04;0a 2c 6c 8a 84"),
    ('o', "24 64 86 8a 6c 2c 0a 06 24"),
    ('p', "0c 00;06 24 64 86 8a 6c 2c 0a"),
    ('q', "8c 80;8a 6c 2c 0a 06 24 64 86"),
    ('r', "0c 04;09 2c 5c"),
    ('s', "7b 5c 2c 0b 09 28 58 77 75 54 24 05"),
    ('t', "2g 26 44 64;0c 5c"),
    ('u', "0c 06 24 64 86;8c 84"),
    ('v', "0c 44 8c"),
    ('w', "0c 34 5b 74 ac"),
    ('x', "0c 84;04 8c"),
    ('y', "0c 44;8c 20"),
    ('z', "0c 8c 04 84"),
    ('A', "04 4g 84;18 78"),
    ('B', "04 0g 5g 7e 7c 5a 0a;5a 88 86 64 04"),
    ('C', "8e 6g 2g 0d 07 24 64 86"),
    ('D', "04 0g 5g 8d 87 54 04"),
    ('E', "8g 0g 04 84;0a 6a"),
    ('F', "8g 0g 04;0a 6a"),
    ('G', "8e 6g 2g 0d 07 24 64 86 89 59"),
    ('H', "04 0g;84 8g;0a 8a"),
    ('I', "14 1g"),
    ('J', "6g 66 44 24 06"),
    ('K', "04 0g;8g 09;3b 84"),
    ('L', "0g 04 74"),
    ('M', "04 0g 59 ag a4"),
    ('N', "04 0g 84 8g"),
    ('O', "24 64 87 8d 6g 2g 0d 07 24"),
    ('P', "04 0g 6g 8e 8b 69 09"),
    ('Q', "24 64 87 8d 6g 2g 0d 07 24;57 93"),
    ('R', "04 0g 6g 8e 8b 69 09;49 84"),
    ('S', "8e 6g 2g 0e 0c 2a 6a 88 86 64 24 06"),
    ('T', "0g 8g;4g 44"),
    ('U', "0g 07 24 64 87 8g"),
    ('V', "0g 44 8g"),
    ('W', "0g 34 5c 74 ag"),
    ('X', "0g 84;04 8g"),
    ('Y', "0g 4a 8g;4a 44"),
    ('Z', "0g 8g 04 84"),
    ('.', "14 15"),
    (',', "15 02"),
    (':', "14 15;1b 1c"),
    (';', "15 02;1b 1c"),
    ('-', "09 69"),
    ('_', "02 82"),
    ('/', "02 7g"),
    ('\\', "0g 72"),
    ('(', "3g 1d 17 33"),
    (')', "0g 2d 27 03"),
    ('[', "3g 0g 03 33"),
    (']', "0g 3g 33 03"),
    ('+', "09 89;4d 45"),
    ('=', "07 87;0b 8b"),
    ('~', "09 2b 68 8a"),
    ('%', "04 8g;0d 0g 3g 3d 0d;57 87 84 54 57"),
    ('!', "1g 18;14 15"),
    ('?', "0e 2g 6g 8e 8c 4a 48;44 45"),
    ('#', "3g 14;7g 54;0c 8c;08 88"),
    ('*', "4e 46;1c 78;7c 18"),
    ('\'', "1g 1d"),
    ('"', "0g 0d;3g 3d"),
    ('<', "7e 09 74"),
    ('>', "0e 79 04"),
    ('|', "1g 12"),
    ('^', "0c 3g 6c"),
    ('@', "8a 6c 3a 38 57 8a 88 a9 ad 8g 3g 0d 06 24 74"),
    ('&', "84 1d 2g 5g 5e 08 06 24 54 89"),
    ('$', "8e 6f 2f 0d 2a 6a 87 65 25 06;4g 43"),
    ('{', "3g 2f 2b 09 27 24 33"),
    ('}', "0g 1f 1b 39 17 14 03"),
];

/// A box says that there is a letter that this font does not have.
const OTHER: &str = "04 0g 8g 84 04";

fn glyph(character: char) -> &'static str {
    GLYPHS.iter().find(|(found, _)| *found == character).map_or(OTHER, |(_, lines)| lines)
}

fn points(line: &str) -> Vec<(f64, f64)> {
    let point = |word: &str| {
        let mut digits = word.chars().filter_map(|digit| digit.to_digit(36));
        Some((f64::from(digits.next()?), f64::from(digits.next()?)))
    };
    line.split(' ').filter_map(point).collect()
}

fn width(character: char) -> f64 {
    if character == ' ' {
        return BLANK;
    }
    let lines = glyph(character).split(';');
    lines.flat_map(points).map(|(x, _)| x).fold(0.0, f64::max) + SPACE
}

/// Width of a text at a size.
pub fn text_width(text: &str, size: f64) -> f64 {
    text.chars().map(width).sum::<f64>() * size / UNITS
}

/// The lines of a text that begins at a place on its base line.
pub fn text_lines(text: &str, size: f64, (mut x, y): (f64, f64)) -> Vec<Vec<(f64, f64)>> {
    let scale = size / UNITS;
    let mut lines = Vec::new();
    for character in text.chars() {
        if character != ' ' {
            for line in glyph(character).split(';') {
                let place = |(px, py): (f64, f64)| (x + px * scale, y - (py - 4.0) * scale);
                lines.push(points(line).into_iter().map(place).collect());
            }
        }
        x += width(character) * scale;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_printable_character_has_lines_of_two_points() {
        for character in ('!'..='~').chain(['é']) {
            let lines: Vec<_> = glyph(character).split(';').map(points).collect();
            assert!(lines.iter().all(|line| line.len() > 1), "{character}");
            let is_inside = |&(x, y): &(f64, f64)| x <= 12.0 && y <= 16.0;
            assert!(lines.iter().flatten().all(is_inside), "{character}");
        }
        assert_eq!(text_lines("a b", 17.0, (0.0, 0.0)).len(), 4);
        assert!(text_width("loss", 12.0) < text_width("losses", 12.0));
    }
}
