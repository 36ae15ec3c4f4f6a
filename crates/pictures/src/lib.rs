//! Preparation of images for models: in a format that every provider supports, and not larger than
//! the settings allow. An image that cannot be made to fit is omitted, with a sentence in its
//! place. Every image is decoded first, because providers refuse a request with a damaged one. Only
//! an SVG image is sent as text.

use std::io::Cursor;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::codecs::jpeg::JpegEncoder;
use image::imageops::FilterType;
use image::{DynamicImage, ImageError, ImageFormat, ImageReader};

use transcript::{File, ImageSettings};

/// The maximum memory for decoding an image, in bytes.
const MAX_DECODED_BYTES: u64 = 512 << 20;

/// The JPEG qualities to try, in this order; the best is 100.
const QUALITIES: [u8; 5] = [80, 85, 70, 55, 40];

/// The maximum number of sizes to try, with the first one that is not too wide or too high.
const MAX_SIZES: u32 = 32;

/// The largest SVG image that is sent as text, in bytes.
const MAX_SVG_BYTES: usize = 64 << 10;

/// An image as it is sent to a model.
#[derive(Debug, Clone, PartialEq)]
pub enum Prepared {
    /// An image that providers accept, or a file that is not an image.
    File(File),
    /// The source of an SVG image, which no provider accepts as an image.
    Text(String),
}

/// Returns whether a file is an image, by its MIME type.
pub fn is_picture(file: &File) -> bool {
    file.mime.starts_with("image/")
}

/// Makes an image fit, on a blocking thread. Other files, and images without data, are returned
/// unchanged.
///
/// # Errors
/// A sentence for the model and the user, with the name of the image and the reason why it was left
/// out.
pub async fn fitting(file: File, limits: ImageSettings) -> Result<Prepared, String> {
    if !is_picture(&file) || file.data.is_none() {
        return Ok(Prepared::File(file));
    }
    let named = named(&file);
    let fitted = base::task::spawn_blocking(move || fit(file, &limits)).await;
    let fitted = fitted.unwrap_or_else(|_| Err("cannot be decoded".into()));
    fitted.map_err(|why| format!("{named} was left out: it {why}."))
}

/// Returns the sentence on an image that was left out. `why` follows "it": "is damaged".
pub fn left_out(file: &File, why: &str) -> String {
    format!("{} was left out: it {why}.", named(file))
}

/// Returns the beginning of a sentence on an image.
fn named(file: &File) -> String {
    let name = file.name.as_deref().or(file.uri.as_deref());
    name.map_or_else(
        || "An image".to_owned(),
        |name| format!("The image {}", base::text::title(name)),
    )
}

/// Makes an image fit. Other files, and images without data, are returned unchanged. Takes
/// milliseconds to seconds, so it must not run on a thread that serves other tasks.
///
/// # Errors
/// The reason why it cannot be sent, in words that follow its name.
pub fn fit(file: File, limits: &ImageSettings) -> Result<Prepared, String> {
    if !is_picture(&file) {
        return Ok(Prepared::File(file));
    }
    let Some(data) = &file.data else {
        return Ok(Prepared::File(file));
    };
    let bytes = STANDARD
        .decode(data.trim_ascii())
        .map_err(|_| "is damaged".to_owned())?;
    if bytes.is_empty() {
        return Err("is empty".to_owned());
    }
    if let Some(source) = svg_source(&file, &bytes) {
        return source.map(Prepared::Text);
    }
    if let Some(name) = unsupported(&bytes) {
        return Err(format!(
            "is an image in {name}, which cannot be converted here; convert it to PNG or JPEG first"
        ));
    }
    let format = image::guess_format(&bytes).ok();
    let Some(format) = format.filter(ImageFormat::reading_enabled) else {
        return Err(format!(
            "is not a PNG, JPEG, GIF, WebP, BMP, TIFF, ICO or SVG ({}); convert it first",
            base::text::title(&file.mime)
        ));
    };
    let (width, height) = ImageReader::with_format(Cursor::new(&bytes), format)
        .into_dimensions()
        .map_err(|e| undecodable(&e).to_owned())?;
    let is = format!(
        "has {width}x{height} pixels and {} KiB in base64",
        data.len() >> 10
    );
    let most = format!(
        "{}x{} and {} KiB are the most here",
        limits.max_width,
        limits.max_height,
        limits.max_base64_bytes >> 10
    );
    let large = width > limits.max_width || height > limits.max_height;
    let sent_as_is = is_accepted(format);
    let heavy = sent_as_is && data.len() > limits.max_base64_bytes;
    if (large || heavy) && !limits.auto_resize {
        return Err(format!("{is}; {most}"));
    }
    let mut reader = ImageReader::with_format(Cursor::new(&bytes), format);
    let mut decoder_limits = image::Limits::default();
    decoder_limits.max_alloc = Some(MAX_DECODED_BYTES);
    reader.limits(decoder_limits);
    let picture = reader.decode().map_err(|e| match e {
        ImageError::Limits(_) => format!("{is}, which is too much to decode it"),
        e => undecodable(&e).to_owned(),
    })?;
    if format == ImageFormat::Jpeg && !has_jpeg_end(&bytes) {
        return Err("is cut off".to_owned());
    }
    if sent_as_is && !large && !heavy {
        let mime = format.to_mime_type().to_owned();
        return Ok(Prepared::File(File { mime, ..file }));
    }
    let (mime, bytes) = smaller(&picture, limits)
        .ok_or_else(|| format!("{is}; {most}, and it cannot be made to fit"))?;
    Ok(Prepared::File(File {
        mime: mime.to_owned(),
        data: Some(STANDARD.encode(bytes)),
        ..file
    }))
}

/// Returns the reason why an image cannot be decoded.
fn undecodable(error: &ImageError) -> &'static str {
    match error {
        ImageError::Unsupported(_) => "is of an unusual kind; convert it first",
        ImageError::Limits(_) => "is too much to decode it",
        _ => "is damaged",
    }
}

/// Returns whether a JPEG has an end. The decoder fills the missing rest of one without an end with
/// grey, and providers refuse it. A thumbnail among the segments before the picture has an end of
/// its own.
fn has_jpeg_end(bytes: &[u8]) -> bool {
    const START_OF_SCAN: u8 = 0xda;
    const END: [u8; 2] = [0xff, 0xd9];
    let mut at = 2;
    while let Some([0xff, marker, rest @ ..]) = bytes.get(at..)
        && *marker != START_OF_SCAN
    {
        let [high, low, ..] = rest else { return false };
        // A marker may have any number of fill bytes before it.
        at += match marker {
            0xff => 1,
            _ => 2 + usize::from(u16::from_be_bytes([*high, *low])),
        };
    }
    // Decoders skip bytes between the segments that belong to none.
    let rest = bytes.get(at..).unwrap_or_default();
    rest.windows(END.len()).any(|two| two == END)
}

/// Returns the name of a format that cannot be converted here, by the first bytes. Cameras,
/// telephones, browsers and Photoshop write such formats.
fn unsupported(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        // A box of this type, then the brands.
        [_, _, _, _, b'f', b't', b'y', b'p', brand @ ..] => match brand.get(..4)? {
            b"avif" | b"avis" => Some("AVIF"),
            b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" | b"mif1" | b"msf1" => {
                Some("HEIC")
            }
            _ => None,
        },
        [0, 0, 0, 0x0c, b'J', b'X', b'L', b' ', ..] | [0xff, 0x0a, ..] => Some("JPEG XL"),
        [0, 0, 0, 0x0c, b'j', b'P', b' ', b' ', ..] | [0xff, 0x4f, 0xff, 0x51, ..] => {
            Some("JPEG 2000")
        }
        [b'8', b'B', b'P', b'S', ..] => Some("Photoshop's format"),
        _ => None,
    }
}

/// Returns whether all providers accept a format; others are converted.
fn is_accepted(format: ImageFormat) -> bool {
    matches!(
        format,
        ImageFormat::Png | ImageFormat::Jpeg | ImageFormat::Gif | ImageFormat::WebP
    )
}

/// Returns the source of an SVG image after a line with its name, or the reason why it cannot be
/// sent; `None` for any other image.
fn svg_source(file: &File, bytes: &[u8]) -> Option<Result<String, String>> {
    let text = std::str::from_utf8(bytes).ok();
    let start = text.map(|text| text.trim_start_matches('\u{feff}').trim_start());
    let is_svg = start.is_some_and(|start| {
        start.starts_with("<svg") || (file.mime.starts_with("image/svg") && start.starts_with('<'))
    });
    if !is_svg {
        return None;
    }
    if bytes.len() > MAX_SVG_BYTES {
        return Some(Err(format!(
            "is an SVG of {} KiB, and {} KiB are the most that is sent as text",
            bytes.len() >> 10,
            MAX_SVG_BYTES >> 10
        )));
    }
    let named = named(file);
    let source = start.unwrap_or_default();
    Some(Ok(format!("{named} is this SVG:\n{source}")))
}

/// Returns the MIME type and the bytes of the first version that fits. Sizes are tried from the
/// largest down in steps of a quarter, each as PNG, then as JPEG. Returns `None` if none fits.
fn smaller(picture: &DynamicImage, limits: &ImageSettings) -> Option<(&'static str, Vec<u8>)> {
    let width = f64::from(picture.width());
    let height = f64::from(picture.height());
    let mut scale = (f64::from(limits.max_width) / width)
        .min(f64::from(limits.max_height) / height)
        .min(1.0);
    let max_bytes = limits.max_base64_bytes / 4 * 3;
    for _ in 0..MAX_SIZES {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 1 and the size it has"
        )]
        let side = |length: f64| (length * scale).round().max(1.0) as u32;
        let to_width = side(width);
        let to_height = side(height);
        let sized = if scale < 1.0 {
            picture.resize_exact(to_width, to_height, FilterType::Lanczos3)
        } else {
            picture.clone()
        };
        let mut png = Vec::new();
        if sized
            .write_to(&mut Cursor::new(&mut png), ImageFormat::Png)
            .is_ok()
            && png.len() <= max_bytes
        {
            return Some(("image/png", png));
        }
        // Without this, transparent pixels would become black.
        let flat = DynamicImage::ImageRgb8(opaque(&sized));
        for quality in QUALITIES {
            let mut jpeg = Vec::new();
            let done = flat.write_with_encoder(JpegEncoder::new_with_quality(&mut jpeg, quality));
            if done.is_ok() && jpeg.len() <= max_bytes {
                return Some(("image/jpeg", jpeg));
            }
        }
        if to_width == 1 && to_height == 1 {
            return None;
        }
        scale *= 0.75;
    }
    None
}

/// Returns the image on a white background.
fn opaque(picture: &DynamicImage) -> image::RgbImage {
    let mut out = image::RgbImage::new(picture.width(), picture.height());
    for (to, from) in out.pixels_mut().zip(picture.to_rgba8().pixels()) {
        let [red, green, blue, alpha] = from.0;
        let over = |colour: u8| {
            let mixed = u32::from(colour) * u32::from(alpha) + 255 * (255 - u32::from(alpha));
            u8::try_from(mixed / 255).unwrap_or(u8::MAX)
        };
        to.0 = [over(red), over(green), over(blue)];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ImageSettings = ImageSettings {
        auto_resize: true,
        max_width: 64,
        max_height: 64,
        max_base64_bytes: 4 << 10,
    };

    /// Noise, which does not compress.
    fn noise(width: u32, height: u32) -> DynamicImage {
        let mut state = 7_u32;
        DynamicImage::ImageRgba8(image::RgbaImage::from_fn(width, height, |_, _| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [a, b, c, _] = state.to_be_bytes();
            image::Rgba([a, b, c, 255])
        }))
    }

    fn file(picture: &DynamicImage, format: ImageFormat) -> File {
        let mut bytes = Vec::new();
        let picture = if format == ImageFormat::Jpeg {
            &DynamicImage::ImageRgb8(picture.to_rgb8())
        } else {
            picture
        };
        picture
            .write_to(&mut Cursor::new(&mut bytes), format)
            .unwrap();
        File {
            mime: "image/anything".into(),
            name: None,
            uri: None,
            data: Some(STANDARD.encode(bytes)),
            is_rejected: false,
        }
    }

    fn sent(prepared: Prepared) -> File {
        match prepared {
            Prepared::File(file) => file,
            Prepared::Text(text) => panic!("text: {text}"),
        }
    }

    fn size(file: &File) -> (u32, u32, usize) {
        let data = file.data.as_ref().unwrap();
        let bytes = STANDARD.decode(data).unwrap();
        let read = image::load_from_memory(&bytes).unwrap();
        (read.width(), read.height(), data.len())
    }

    #[test]
    fn oversized_pictures_are_made_to_fit() {
        let flat = DynamicImage::ImageRgba8(image::RgbaImage::from_pixel(
            200,
            100,
            image::Rgba([1, 2, 3, 0]),
        ));
        let table = [
            // An image that fits is unchanged, except for its MIME type.
            (
                file(
                    &flat.resize_exact(64, 10, FilterType::Nearest),
                    ImageFormat::Png,
                ),
                "image/png",
                (64, 10),
            ),
            (
                file(&noise(16, 16), ImageFormat::Jpeg),
                "image/jpeg",
                (16, 16),
            ),
            (
                file(
                    &flat.resize_exact(8, 8, FilterType::Nearest),
                    ImageFormat::Gif,
                ),
                "image/gif",
                (8, 8),
            ),
            // Too wide; its content is simple.
            (file(&flat, ImageFormat::Png), "image/png", (64, 32)),
            (file(&flat, ImageFormat::WebP), "image/png", (64, 32)),
            // Formats of clipboards, which no provider accepts, and which are larger than the PNG.
            (file(&flat, ImageFormat::Bmp), "image/png", (64, 32)),
            (
                file(
                    &flat.resize_exact(50, 50, FilterType::Nearest),
                    ImageFormat::Tiff,
                ),
                "image/png",
                (50, 50),
            ),
            (
                file(
                    &flat.resize_exact(16, 16, FilterType::Nearest),
                    ImageFormat::Ico,
                ),
                "image/png",
                (16, 16),
            ),
            // Too heavy as a PNG, not as a JPEG.
            (
                file(&noise(40, 40), ImageFormat::Png),
                "image/jpeg",
                (40, 40),
            ),
        ];
        for (given, mime, wanted) in table {
            let fitted = sent(fit(given, &LIMITS).unwrap());
            let (width, height, length) = size(&fitted);
            assert_eq!((fitted.mime.as_str(), (width, height)), (mime, wanted));
            assert!(length <= LIMITS.max_base64_bytes, "{length}");
        }
        // Too heavy in any way.
        let fitted = fit(
            file(&noise(300, 100), ImageFormat::Png),
            &ImageSettings {
                max_base64_bytes: 1000,
                ..LIMITS
            },
        );
        let (width, height, length) = size(&sent(fitted.unwrap()));
        assert!(
            width < 64 && height < width && length <= 1000,
            "{width}x{height} {length}"
        );
    }

    #[test]
    fn unsuitable_picture_is_refused_with_a_reason() {
        let of = |mime: &str, bytes: &[u8]| File {
            mime: mime.into(),
            name: None,
            uri: None,
            data: Some(STANDARD.encode(bytes)),
            is_rejected: false,
        };
        let whole = file(&noise(100, 100), ImageFormat::Png);
        let half = {
            let bytes = STANDARD.decode(whole.data.as_ref().unwrap()).unwrap();
            of("image/png", &bytes[..bytes.len() / 2])
        };
        let cut = {
            let small = file(&noise(16, 16), ImageFormat::Png);
            let bytes = STANDARD.decode(small.data.unwrap()).unwrap();
            of("image/png", &bytes[..bytes.len() / 2])
        };
        let jpeg = |picture: &DynamicImage, without: usize| {
            let data = file(picture, ImageFormat::Jpeg).data.unwrap();
            let bytes = STANDARD.decode(data).unwrap();
            of("image/jpeg", &bytes[..bytes.len() - without])
        };
        let as_it_is = ImageSettings {
            auto_resize: false,
            ..LIMITS
        };
        let tiny = ImageSettings {
            max_base64_bytes: 10,
            ..LIMITS
        };
        let table = [
            (
                of("image/heic", b"\0\0\0\x18ftypheic"),
                &LIMITS,
                "is an image in HEIC, which cannot be converted here",
            ),
            (
                of("image/png", b"\0\0\0\x1cftypavif\0\0\0\0"),
                &LIMITS,
                "is an image in AVIF",
            ),
            (
                of("image/jxl", b"\xff\x0a\0\0"),
                &LIMITS,
                "is an image in JPEG XL",
            ),
            (
                of("image/heic", b"\0\0\0\x18ftypmp42"),
                &LIMITS,
                "is not a PNG, JPEG, GIF, WebP, BMP, TIFF, ICO or SVG (image/heic)",
            ),
            (of("image/png", b""), &LIMITS, "is empty"),
            (
                of(
                    "image/svg+xml",
                    &[b"<svg>".as_slice(), &[b' '; 70 << 10]].concat(),
                ),
                &LIMITS,
                "is an SVG of 70 KiB",
            ),
            (of("image/svg+xml", b"\xff\0"), &LIMITS, "is not a PNG"),
            (of("image/tiff", b"II*\0........"), &LIMITS, "is damaged"),
            (
                of("image/x-qoi", b"qoif\0\0\0\x01"),
                &LIMITS,
                "is not a PNG, JPEG, GIF, WebP, BMP, TIFF, ICO or SVG (image/x-qoi)",
            ),
            // Small enough to be sent as it is, and cut off.
            (cut, &LIMITS, "is damaged"),
            (of("image/png", b"\x89PNG\r\n\x1a\n"), &LIMITS, "is damaged"),
            (half, &LIMITS, "is damaged"),
            (jpeg(&noise(16, 16), 2), &LIMITS, "is cut off"),
            (jpeg(&noise(16, 16), 100), &LIMITS, "is cut off"),
            (jpeg(&noise(100, 100), 100), &LIMITS, "is cut off"),
            (whole.clone(), &as_it_is, "has 100x100 pixels and"),
            (whole, &tiny, "it cannot be made to fit"),
            (
                File {
                    data: Some("???".into()),
                    ..of("image/png", b"")
                },
                &LIMITS,
                "is damaged",
            ),
        ];
        for (given, limits, why) in table {
            let message = fit(given, limits).unwrap_err();
            assert!(message.contains(why), "{message}");
        }
        let pdf = of("application/pdf", b"%PDF");
        assert_eq!(
            fit(pdf.clone(), &LIMITS),
            Ok(Prepared::File(pdf)),
            "no picture"
        );
        for (mime, source) in [
            ("image/svg+xml", "<?xml version=\"1.0\"?>\n<svg/>"),
            ("image/png", "<svg width=\"1\"/>"),
        ] {
            let text = format!("An image is this SVG:\n{source}");
            let prepared = fit(of(mime, source.as_bytes()), &LIMITS);
            assert_eq!(prepared, Ok(Prepared::Text(text)));
        }
    }
}
